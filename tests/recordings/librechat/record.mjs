// Record what LibreChat asks a model for a chat's title and for a summary: see ../README.md.
//
//   npm install @librechat/agents && node record.mjs OUT_FOLDER
//
// LibreChat makes these requests through this package of its own; its own calls (titles, and the summary of a chat that
// has grown too long) are made here with a scripted endpoint behind it, at the package's default prompts.
import { createServer } from 'node:http';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

const load = createRequire(join(process.cwd(), 'x.js'));
const { Run } = load('@librechat/agents');
const { HumanMessage, AIMessage } = load('@langchain/core/messages');
const home = load.resolve('@librechat/agents').split('/dist/')[0];
const { version } = JSON.parse(readFileSync(join(home, 'package.json')));
const out = process.argv[2] ?? '.';
let exchanges = [];
let kind = 'title';

function answerTo(body) {
  const tool = body.tools?.[0]?.function;
  if (body.response_format) return { content: JSON.stringify({ language: 'English', title: 'A Title' }) };
  if (tool) {
    const call = { name: tool.name, arguments: JSON.stringify({ language: 'English', title: 'A Title' }) };
    return { content: null, tool_calls: [{ id: 'call_1', type: 'function', function: call }] };
  }
  return { content: kind === 'title' ? 'A Title' : kind === 'summary' ? 'Questions about the sea, all answered.' : 'Yes.' };
}

const server = createServer((request, response) => {
  let text = '';
  request.on('data', (piece) => (text += piece));
  request.on('end', () => {
    const body = JSON.parse(text);
    if (kind === 'summary' && exchanges.length) kind = 'chat';
    const answer = answerTo(body);
    const headers = { ...request.headers };
    delete headers['content-length'];
    for (const name of Object.keys(headers)) if (/^x-stainless-(os|arch|runtime)/.test(name)) delete headers[name];
    headers.host = '127.0.0.1:8000';
    headers.authorization = 'Bearer sk-neutral';
    exchanges.push({ kind, request: { method: 'POST', path: request.url, headers, body }, answer });
    const head = { id: 'chatcmpl-1', created: 1767268800, model: body.model };
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const finish = answer.tool_calls ? 'tool_calls' : 'stop';
    if (!body.stream) {
      const choice = { index: 0, message: { role: 'assistant', ...answer }, finish_reason: finish };
      response.setHeader('content-type', 'application/json');
      return response.end(JSON.stringify({ ...head, object: 'chat.completion', choices: [choice], usage }));
    }
    response.setHeader('content-type', 'text/event-stream');
    const delta = { role: 'assistant', ...answer };
    if (delta.tool_calls) delta.tool_calls = delta.tool_calls.map((call, index) => ({ index, ...call }));
    for (const choice of [{ index: 0, delta, finish_reason: null }, { index: 0, delta: {}, finish_reason: finish }])
      response.write(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices: [choice] })}\n\n`);
    response.end('data: [DONE]\n\n');
  });
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const baseURL = `http://127.0.0.1:${server.address().port}/v1`;
const client = { model: 'assistant', apiKey: 'sk-neutral', streaming: false, configuration: { baseURL } };
const llmConfig = { provider: 'openAI', ...client };

function write(name, scene) {
  const head = { program: `LibreChat's @librechat/agents ${version}`, scene };
  writeFileSync(join(out, `${name}.json`), JSON.stringify({ ...head, exchanges }, null, 1) + '\n');
  console.log(`${name}: ${exchanges.length} requests`);
  exchanges = [];
}

async function run(more = {}) {
  const config = { type: 'standard', llmConfig, tools: [], instructions: 'You are kind.', ...more };
  return Run.create({ runId: 'run_1', graphConfig: config, returnContent: true, customHandlers: {} });
}

for (const titleMethod of ['completion', 'structured', 'functions']) {
  const contentParts = [{ type: 'text', text: 'Yes, it is a test.' }];
  const inputText = 'Is this a test?';
  try {
    await (await run()).generateTitle({ provider: 'openAI', inputText, contentParts, clientOptions: client, titleMethod });
  } catch (error) {
    console.log(titleMethod, String(error).slice(0, 300));
  }
  write(`title_${titleMethod}`, `The title of a new chat, titleMethod "${titleMethod}".`);
}

kind = 'summary';
const words = 'why is the sea salt and the sky wide? '.repeat(30);
const messages = [];
for (let n = 1; n <= 4; n++) messages.push(new HumanMessage(`Question ${n}: ${words}`), new AIMessage(`Answer ${n}: yes.`));
messages.push(new HumanMessage('And now?'));
try {
  const { createTokenCounter } = load('@librechat/agents');
  const agents = [{ agentId: 'a', provider: 'openAI', clientOptions: client, instructions: 'You are kind.', maxContextTokens: 900,
    summarizationEnabled: true, summarizationConfig: { trigger: { type: 'token_ratio', value: 0.5 } } }];
  const summarising = await Run.create({ runId: 'run_2', graphConfig: { type: 'standard', agents }, returnContent: true,
    customHandlers: {}, tokenCounter: await createTokenCounter(), indexTokenCountMap: Object.fromEntries(messages.map((m, n) => [n, 250])) });
  const config = { configurable: { thread_id: 't' }, streamMode: 'values', version: 'v2' };
  await summarising.processStream({ messages }, config);
} catch (error) {
  console.log('summary', String(error).slice(0, 500));
}
write('summary', 'A chat that has grown too long is shortened by a summary, then answered.');
server.close();
process.exit(0);
