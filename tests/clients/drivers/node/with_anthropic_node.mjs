// The Anthropic Node SDK, with its own loop over the tools, and thinking in every request with tools.

import { answerOf, apiKey, baseURL, describePart, load, parameters, question, run, system } from "./driver.mjs";

const Anthropic = load("@anthropic-ai/sdk");
const { betaTool } = load("@anthropic-ai/sdk/helpers/beta/json-schema");
const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ""), apiKey, maxRetries: 0, timeout: 30_000 });
const thinking = { type: "enabled", budget_tokens: 1024 };

const user = (content) => ({ role: "user", content });
const ask = (request) => client.messages.create(request);
const askStreaming = (request) => client.messages.stream(request).finalMessage();
const textOf = ({ content }) => content.map((block) => block.text ?? "").join("");

async function complete(model, askWith) {
  const done = await askWith({ model, max_tokens: 2048, messages: [user("hi")] });
  return answerOf(textOf(done), done.usage.input_tokens, done.usage.output_tokens);
}

// `thread: false` sends the whole conversation each time. By default the server holds it, as a thread.
async function read(model, settings) {
  const parts = [];
  const readPart = ({ number }) => {
    parts.push(number);
    return describePart(number);
  };
  const description = "Read a part of the log.";
  const tools = [betaTool({ name: "read_part", description, inputSchema: parameters, run: readPart })];
  const request = { model, max_tokens: 2048, system, messages: [user(question)], tools, thinking };
  const done = await client.beta.messages.toolRunner({ ...request, ...settings, max_iterations: 200 }).runUntilDone();
  return answerOf(textOf(done), null, null, parts);
}

await run({
  complete: (model) => complete(model, ask),
  stream: (model) => complete(model, askStreaming),
  read: (model) => read(model, { thread: false }),
  "read-stream": (model) => read(model, { thread: false, stream: true }),
  held: (model) => read(model, {}),
});
