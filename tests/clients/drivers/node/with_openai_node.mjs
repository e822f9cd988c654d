// The OpenAI Node SDK.

import { answerOf, apiKey, baseURL, describePart, load, parameters, question, run, system } from "./driver.mjs";

const OpenAI = load("openai");
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30_000 });
const user = (content) => ({ role: "user", content });

async function complete(model) {
  const done = await client.chat.completions.create({ model, messages: [user("hi")] });
  return answerOf(done.choices[0].message.content, done.usage?.prompt_tokens, done.usage?.completion_tokens);
}

async function stream(model) {
  const request = { model, messages: [user("hi")], stream: true, stream_options: { include_usage: true } };
  let text = "";
  let usage = null;
  for await (const chunk of await client.chat.completions.create(request)) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  return answerOf(text, usage?.prompt_tokens, usage?.completion_tokens);
}

async function read(model, more = {}) {
  const parts = [];
  const readPart = ({ number }) => {
    parts.push(number);
    return describePart(number);
  };
  const tool = { name: "read_part", parameters, parse: JSON.parse, function: readPart };
  const messages = [{ role: "system", content: system }, user(question)];
  const tools = [{ type: "function", function: tool }];
  const runner = client.chat.completions.runTools({ model, messages, tools, ...more }, { maxChatCompletions: 200 });
  return answerOf(await runner.finalContent(), null, null, parts);
}

await run({ complete, stream, read, "read-stream": (model) => read(model, { stream: true }) });
