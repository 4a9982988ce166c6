/** A plot of what goes on, over time. */
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { theme } from "../../theme";

export interface Line {
  name: string;
  /** A colour's token, such as `accent`. */
  color: "accent" | "warn" | "bad" | "live";
  values: readonly (number | null)[];
}

interface PlotProps {
  title: string;
  /** Unix seconds, one for each value. */
  times: readonly number[];
  lines: readonly Line[];
  show: (value: number) => string;
  /** Bars, of whole days in UTC. */
  bars?: boolean;
}

const HEIGHT = 150;
/** Seconds that a plot shows at least. */
const SHORTEST = 300;

/** Below it stand the values under the pointer, or the newest ones: what the picture shows is also said. */
export function Plot({ title, times, lines, show, bars = false }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [scheme, setScheme] = useState(0);
  const names = lines.map((line) => line.name).join();
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setScheme((old) => old + 1);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    const place = box.current;
    if (!place) return;
    // A canvas knows no tokens: they are read where they hold.
    const color = (token: string) => {
      const probe = place.appendChild(document.createElement("i"));
      probe.style.color = `var(--${token})`;
      const found = getComputedStyle(probe).color;
      probe.remove();
      return found;
    };
    const axis = { stroke: color("quiet"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
    const paths = bars ? uPlot.paths.bars?.({ size: [0.7, 40] }) : undefined;
    const made = new uPlot(
      {
        width: place.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false } },
        scales: { x: bars ? {} : { range: (_, first, last) => [Math.min(first ?? 0, (last ?? 0) - SHORTEST), last ?? 0] }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
        ...(bars ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "UTC") } : {}),
        axes: [axis, { ...axis, size: 64, values: (_, splits) => splits.map(show) }],
        series: [{}, ...lines.map((line) => ({ label: line.name, stroke: color(line.color), width: bars ? 0 : 1.5, points: { show: false }, ...(paths ? { paths, fill: color(line.color) } : {}) }))],
        hooks: { setCursor: [(shown) => setAt(shown.cursor.idx ?? null)] },
      },
      [[], ...lines.map(() => [])],
      place,
    );
    plot.current = made;
    const watcher = new ResizeObserver(() => made.setSize({ width: place.clientWidth, height: HEIGHT }));
    watcher.observe(place);
    return () => (watcher.disconnect(), made.destroy());
  }, [names, bars, theme.value, scheme]);
  useEffect(() => {
    // Of one moment alone uPlot would show years.
    const [first, ...more] = times;
    const before = first !== undefined && more.length === 0 ? [first - (bars ? 86_400 : SHORTEST)] : [];
    plot.current?.setData([[...before, ...times], ...lines.map((line) => [...before.map(() => null), ...line.values])]);
  }, [times, lines, theme.value, scheme]);
  const shown = at !== null && at < times.length ? at : times.length - 1;
  return (
    <figure class="plot card">
      <figcaption>
        <strong>{title}</strong>
        {lines.map((line) => (
          <span key={line.name} class={`legend ${line.color}`}>
            {line.name} {typeof line.values[shown] === "number" ? show(line.values[shown]) : "–"}
          </span>
        ))}
      </figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}
