// The common part of the drivers for Node clients: it takes jobs from the command line and answers each by a line of
// JSON. A driver plays a user's program. It gets a base URL and a key from the environment, and knows no trimtab.

import { createRequire } from "node:module";

export const { OPENAI_BASE_URL: baseURL, OPENAI_API_KEY: apiKey, NODE_CLIENTS: packages } = process.env;
export const load = createRequire(`${packages}/package.json`);
export const question = "Read all parts of the harbour's log, one after the other, and say what is wrong.";
export const system = "You read the harbour's log.";
export const parameters = {
  type: "object",
  properties: { number: { type: "integer" } },
  required: ["number"],
  additionalProperties: false,
};

// The result of the tool.
export function describePart(number) {
  const line = (at) => `Line ${at} of part ${number}: ship ${number * at} lies at quay ${at}, all well.`;
  return Array.from({ length: 25 }, (_, at) => line(at)).join("\n");
}

export function answerOf(text, prompt_tokens = null, completion_tokens = null, parts = []) {
  return { text, prompt_tokens, completion_tokens, parts };
}

// Does each `kind=model` of the command line.
export async function run(jobs) {
  for (const argument of process.argv.slice(2)) {
    const [kind, model] = argument.split("=");
    let said;
    try {
      said = { error: null, ...(await jobs[kind](model)) };
    } catch (error) {
      said = { error: error.constructor.name, status: error.status ?? error.statusCode ?? null, message: error.message };
    }
    process.stdout.write(JSON.stringify(said) + "\n");
  }
}
