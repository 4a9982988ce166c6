// The official `openai` package for node.
import OpenAI from 'openai';
import { API_KEY, BASE_URL, conversation, main, seen, tag, test } from './common.mjs';

const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const ask = (text, model = 'solo', more = {}) => ({ model, messages: [{ role: 'user', content: text }], ...more });
const summed = (usage) => usage && [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens];
const whole = ({ choices: [choice], usage }) => ({ text: choice.message.content, finish: choice.finish_reason, usage: summed(usage) });

async function caught(call) {
  try {
    await call();
  } catch (error) {
    return { class: error.constructor.name, status: error.status, param: error.param ?? null };
  }
}

test('plain', async () => whole(await client.chat.completions.create(ask('Hello.'))));

test('stream', async () => {
  const more = { stream: true, stream_options: { include_usage: true } };
  let [text, finish, usage, pieces] = ['', null, null, 0];
  for await (const chunk of await client.chat.completions.create(ask('Hello again, in pieces.', 'solo', more))) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = summed(chunk.usage) ?? usage;
    pieces += 1;
  }
  return { text, finish, usage, pieces: pieces > 3 };
});

test('group', async () => whole(await client.chat.completions.create(ask('Write.', 'pair'))));

test('stream_helper', async () => {
  const message = await client.chat.completions.stream(ask('Write this.', 'pair')).finalMessage();
  return { text: message.content, role: message.role, name: message.name ?? null };
});

test('history', async () => {
  const first = await client.chat.completions.create(ask('My name is Ada.'));
  const messages = conversation(first.choices[0].message.content);
  return seen((await client.chat.completions.create({ model: 'solo', messages })).choices[0].message.content);
});

const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const weather = { type: 'function', function: { name: 'get_weather', description: 'The weather', parameters } };

test('tools', async () => {
  const messages = ask('How is the weather?').messages;
  const [first] = (await client.chat.completions.create({ model: 'solo', messages, tools: [weather] })).choices;
  const calls = first.message.tool_calls ?? [];
  const done = calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: '21 degrees' }));
  const next = { model: 'solo', messages: [...messages, first.message, ...done], tools: [weather] };
  const text = calls.length ? (await client.chat.completions.create(next)).choices[0].message.content : null;
  const named = calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
  return { finish: first.finish_reason, calls: named, text };
});

test('run_tools', async () => {
  // The helper that executes the calls and asks again by itself.
  const run = { ...weather, function: { ...weather.function, parse: JSON.parse, function: async () => '21 degrees' } };
  const runner = client.chat.completions.runTools(ask('How is the weather, by the helper?', 'solo', { tools: [run] }));
  return runner.finalContent();
});

const person = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name', 'age'],
  additionalProperties: false,
};
const form = { type: 'json_schema', json_schema: { name: 'Person', schema: person, strict: true } };

test('structured', async () => {
  const answer = await client.chat.completions.create(ask('Who wrote the first program?', 'solo', { response_format: form }));
  return JSON.parse(answer.choices[0].message.content);
});

test('models', async () => {
  const found = [];
  for await (const model of client.models.list()) found.push(model.id);
  return found.sort();
});

test('unknown_key', () => caught(() => client.withOptions({ apiKey: 'sk-nobody' }).chat.completions.create(ask('Hello.'))));
test('unknown_model', () => caught(() => client.chat.completions.create(ask('Hello.', 'nobody'))));
test('bad_value', () => caught(() => client.chat.completions.create(ask('Hello.', 'solo', { temperature: 7 }))));

test('timeout', async () => {
  const word = tag('slow');
  let text = null;
  try {
    const answer = await client.chat.completions.create(ask(`Be slow ${word} please`), { timeout: 1000 });
    text = answer.choices[0].message.content;
  } catch (error) {
    if (!(error instanceof OpenAI.APIConnectionTimeoutError)) throw error;
  }
  const asked = await client.chat.completions.create(ask(`How often ${word}`));
  return { text, asked: asked.choices[0].message.content };
});

test('responses', async () => (await client.responses.create({ model: 'solo', input: 'Hello, responses.' })).output_text);

test('responses_stream', async () => {
  const stream = client.responses.stream({ model: 'solo', input: 'Hello, in events.' });
  return (await stream.finalResponse()).output_text;
});

await main();
