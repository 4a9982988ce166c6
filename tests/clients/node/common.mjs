// What the node scripts share: a case is a function; what it returns, or throws, is printed as one JSON object.
export const { BASE_URL, API_KEY, CLIENT = 'client', CASES = '' } = process.env;

const cases = [];
export const test = (name, run) => cases.push([name, run]);
export const tag = (name) => `${CLIENT}-${name}-${Date.now()}`;

export const conversation = (answer) => [
  { role: 'system', content: 'Be kind.' },
  { role: 'user', content: 'My name is Ada.' },
  { role: 'assistant', content: answer },
  { role: 'user', content: 'Which messages do you see?' },
];

export function seen(text) {
  const messages = JSON.parse(text);
  const told = messages.filter(([role]) => role === 'system').map(([, content]) => content).join('\n');
  return {
    messages: messages.filter(([role]) => role !== 'system'),
    system: ['You are solo.', 'Be kind.'].filter((part) => told.includes(part)),
  };
}

export async function main() {
  const chosen = CASES.split(' ').filter(Boolean);
  for (const [name, run] of cases) {
    if (chosen.length && !chosen.includes(name)) continue;
    let saw;
    try {
      saw = (await run()) ?? null;
    } catch (error) {
      saw = { raised: error?.constructor?.name ?? 'unknown', text: String(error).slice(0, 600) };
    }
    console.log(JSON.stringify({ case: name, saw }));
  }
}
