// The OpenAI Node SDK on the Responses API, without storage: the driver sends encrypted reasoning back.

import { answerOf, apiKey, baseURL, describePart, load, parameters, question, run, system } from "./driver.mjs";

const OpenAI = load("openai");
const { zodTextFormat } = load("openai/helpers/zod");
const { z } = load("zod");
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30_000 });
const kept = { store: false, include: ["reasoning.encrypted_content"] };
// The SDK's streams add members that the API does not know.
const withoutParsed = (key, value) => (key.startsWith("parsed") ? undefined : value);
const tools = [{ type: "function", name: "read_part", parameters, strict: true }];

const ask = (request) => client.responses.create({ ...request, ...kept });
const askStreaming = (request) => client.responses.stream({ ...request, ...kept }).finalResponse();

async function complete(model, askWith) {
  const done = await askWith({ model, input: "hi" });
  return answerOf(done.output_text, done.usage?.input_tokens, done.usage?.output_tokens);
}

async function parse(model) {
  const format = zodTextFormat(z.object({ ship: z.string(), number: z.number() }), "berth");
  const done = await client.responses.parse({ model, input: "Which berth?", text: { format }, ...kept });
  return answerOf(done.output_text, null, null, [done.output_parsed.number]);
}

async function read(model, askWith) {
  const parts = [];
  const input = [{ role: "user", content: question }];
  for (;;) {
    const done = await askWith({ model, instructions: system, input, tools });
    const calls = done.output.filter((item) => item.type === "function_call");
    if (!calls.length) return answerOf(done.output_text, null, null, parts);
    input.push(...JSON.parse(JSON.stringify(done.output, withoutParsed)));
    for (const call of calls) {
      const { number } = JSON.parse(call.arguments);
      parts.push(number);
      input.push({ type: "function_call_output", call_id: call.call_id, output: describePart(number) });
    }
  }
}

await run({
  complete: (model) => complete(model, ask),
  stream: (model) => complete(model, askStreaming),
  parse,
  read: (model) => read(model, ask),
  "read-stream": (model) => read(model, askStreaming),
});
