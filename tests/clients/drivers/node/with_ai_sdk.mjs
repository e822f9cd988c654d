// The Vercel AI SDK, with the provider package that AI_SDK_PROVIDER names. OpenAI's own provider is on the Responses
// API, its default, unless AI_SDK_API names another.

import { answerOf, apiKey, baseURL, describePart, load, parameters, question, run, system } from "./driver.mjs";

const { generateText, jsonSchema, stepCountIs, streamText, tool } = load("ai");
const { AI_SDK_PROVIDER: name, AI_SDK_API: api } = process.env;
const provider =
  name === "@ai-sdk/openai"
    ? load(name).createOpenAI({ baseURL, apiKey })
    : load(name).createOpenAICompatible({ name: "trimtab", baseURL, apiKey, includeUsage: true });
const makeModel = api ? provider[api] : provider;

async function ask(request) {
  const { text, usage } = await generateText(request);
  return answerOf(text, usage.inputTokens, usage.outputTokens);
}

// The SDK reports errors as parts of the stream. Throw them, as a program does that needs the whole text.
async function askStreaming(request) {
  let text = "";
  let usage = null;
  for await (const part of streamText({ ...request, onError: () => {} }).fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "start-step") text = "";
    if (part.type === "text-delta") text += part.text;
    if (part.type === "finish") usage = part.totalUsage;
  }
  return answerOf(text, usage?.inputTokens, usage?.outputTokens);
}

async function read(model, askWith) {
  const parts = [];
  const execute = async ({ number }) => {
    parts.push(number);
    return describePart(number);
  };
  const tools = { read_part: tool({ inputSchema: jsonSchema(parameters), execute }) };
  const request = { model: makeModel(model), system, prompt: question, tools, stopWhen: stepCountIs(200), maxRetries: 0 };
  return { ...answerOf((await askWith(request)).text), parts };
}

const hi = (model) => ({ model: makeModel(model), prompt: "hi", maxRetries: 0 });

await run({
  complete: (model) => ask(hi(model)),
  stream: (model) => askStreaming(hi(model)),
  read: (model) => read(model, ask),
  "read-stream": (model) => read(model, askStreaming),
});
