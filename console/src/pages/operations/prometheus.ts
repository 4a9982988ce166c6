/** Metrics as Prometheus reads them: samples by name and labels, and what is made of them. */

export interface Sample {
  labels: Readonly<Record<string, string>>;
  value: number;
}
/** Samples by name, as they were at a moment. */
export interface Reading {
  at: number;
  samples: ReadonlyMap<string, readonly Sample[]>;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;

/** Read Prometheus' text. A line that is none of its is passed over. */
export function parse(text: string, at: number): Reading {
  const samples = new Map<string, Sample[]>();
  for (const line of text.split("\n")) {
    const [, name, labels, value] = (line.startsWith("#") ? null : LINE.exec(line)) ?? [];
    if (name === undefined || value === undefined) continue;
    const read = [...(labels ?? "").matchAll(LABEL)].map(([, key, escaped]) => [key, escaped?.replace(/\\(.)/g, (_, letter: string) => (letter === "n" ? "\n" : letter))]);
    const kept = samples.get(name) ?? [];
    kept.push({ labels: Object.fromEntries(read) as Record<string, string>, value: Number(value.replace("Inf", "Infinity")) });
    samples.set(name, kept);
  }
  return { at, samples };
}

/** The sum of the samples that have these labels; 0: there are none. */
export function sum(reading: Reading, name: string, labels: Record<string, string> = {}): number {
  const wanted = Object.entries(labels);
  const fit = (sample: Sample) => wanted.every(([key, value]) => sample.labels[key] === value);
  return (reading.samples.get(name) ?? []).reduce((total, sample) => (fit(sample) ? total + sample.value : total), 0);
}

/** By how much a counter grew between two readings. Where it fell, its server has begun anew. */
export function growth(old: Reading | null, now: Reading, name: string, labels: Record<string, string> = {}): number {
  const end = sum(now, name, labels);
  const begin = old === null ? 0 : sum(old, name, labels);
  return end < begin ? end : end - begin;
}

/** A quantile (0 to 1) of what a histogram has counted between two readings, in seconds, as Prometheus' own
 * `histogram_quantile` estimates it; null: it has counted nothing. */
export function quantile(old: Reading | null, now: Reading, name: string, of: number): number | null {
  const ends = new Set((now.samples.get(`${name}_bucket`) ?? []).map((sample) => sample.labels["le"] ?? "+Inf"));
  const upTo = (le: string) => growth(old, now, `${name}_bucket`, { le });
  const buckets = [...ends].map((le) => [le === "+Inf" ? Infinity : Number(le), upTo(le)] as const).sort(([a], [b]) => a - b);
  const all = buckets.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const place = buckets.findIndex(([, counted]) => counted >= of * all);
  const [end, counted] = buckets[place] ?? [0, 0];
  const [begin, before] = buckets[place - 1] ?? [0, 0];
  if (end === Infinity) return begin;
  return counted === before ? end : begin + ((end - begin) * (of * all - before)) / (counted - before);
}
