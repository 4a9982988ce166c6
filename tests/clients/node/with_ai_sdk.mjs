// The Vercel AI SDK: `@ai-sdk/openai-compatible`, and `@ai-sdk/openai` (its default is the Responses API).
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import { API_KEY, BASE_URL, conversation, main, seen, tag, test } from './common.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;
const compatible = createOpenAICompatible({
  name: 'drsai',
  baseURL: BASE_URL,
  apiKey: API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY });

const city = jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] });
const person = jsonSchema({
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name', 'age'],
  additionalProperties: false,
});
const used = (usage) => [usage.inputTokens, usage.outputTokens, usage.totalTokens];

const ways = { compatible: (name) => compatible(name), chat: (name) => openai.chat(name), default: (name) => openai(name) };
for (const [way, model] of Object.entries(ways)) {
  test(`${way}_plain`, async () => {
    const answer = await generateText({ model: model('solo'), prompt: 'Hello.' });
    return { text: answer.text, finish: answer.finishReason, usage: used(answer.usage) };
  });

  test(`${way}_stream`, async () => {
    const answer = streamText({ model: model('solo'), prompt: 'Hello again, in pieces.', onError: () => {} });
    const pieces = [];
    for await (const piece of answer.textStream) pieces.push(piece);
    return { text: pieces.join(''), finish: await answer.finishReason, usage: used(await answer.usage), pieces: pieces.length > 3 };
  });

  test(`${way}_group`, async () => (await generateText({ model: model('pair'), prompt: 'Write.' })).text);

  test(`${way}_history`, async () => {
    const first = await generateText({ model: model('solo'), prompt: 'My name is Ada.' });
    const [{ content: system }, ...messages] = conversation(first.text);
    return seen((await generateText({ model: model('solo'), instructions: system, messages })).text);
  });

  test(`${way}_tools`, async () => {
    const calls = [];
    const execute = async (input) => {
      calls.push(['get_weather', input]);
      return '21 degrees';
    };
    const tools = { get_weather: tool({ description: 'The weather', inputSchema: city, execute }) };
    const answer = await generateText({ model: model('solo'), tools, stopWhen: isStepCount(4), prompt: 'How is the weather?' });
    return { text: answer.text, calls };
  });

  test(`${way}_structured`, async () => {
    const output = Output.object({ schema: person, name: 'Person' });
    return (await generateText({ model: model('solo'), output, prompt: 'Who wrote the first program?' })).output;
  });
}

const caught = async (call) => {
  try {
    await call();
  } catch (error) {
    const last = error.lastError ?? error;
    return { class: APICallError.isInstance(last), status: last.statusCode ?? null };
  }
};

test('unknown_key', () => {
  const stranger = createOpenAICompatible({ name: 'drsai', baseURL: BASE_URL, apiKey: 'sk-nobody' });
  return caught(() => generateText({ model: stranger('solo'), prompt: 'Hello.' }));
});
test('unknown_model', () => caught(() => generateText({ model: compatible('nobody'), prompt: 'Hello.' })));
test('bad_value', () => caught(() => generateText({ model: compatible('solo'), prompt: 'Hello.', temperature: 7 })));

test('failing_model', async () => {
  // It repeats by itself what it takes for a passing fault.
  const word = tag('failing');
  const error = await caught(() => generateText({ model: compatible('solo'), prompt: `Fail ${word} please` }));
  const asked = await generateText({ model: compatible('solo'), prompt: `How often ${word}` });
  return { raised: error !== undefined, asked: asked.text };
});

await main();
