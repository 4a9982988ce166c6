/** Which rows of a long list are in the page: those that can be seen, and some beyond. */
import { useEffect, useRef, useState } from "preact/hooks";

const BEYOND = 15;

/** The rows `from` to `end` of `count`, all of one `height` in pixels, in a `box` that scrolls. `look` is called by
 * whatever moves it; `looked` then hears up to which row one sees. */
export function useSeen(height: number, count: number, looked: (end: number) => void) {
  const box = useRef<HTMLDivElement>(null);
  const [[from, end], setSeen] = useState<readonly [number, number]>([0, 60]);
  const look = () => {
    const { scrollTop = 0, clientHeight = 0 } = box.current ?? {};
    const first = Math.max(0, Math.floor(scrollTop / height) - BEYOND);
    const last = Math.ceil((scrollTop + clientHeight) / height) + BEYOND;
    setSeen((old) => (old[0] === first && old[1] === last ? old : [first, last]));
    looked(last);
  };
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    const watcher = new ResizeObserver(() => latest.current());
    if (box.current) watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [count === 0]);
  return { box, from, end, look };
}
