/** Parts of the page that are loaded when they are first shown. */
import type { ComponentType } from "preact";
import { useLoaded } from "./load";
import { Show } from "./state";

/** The component that a module has as its default. */
export function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  return function Later(props: P) {
    const made = useLoaded(load, []);
    return <Show of={made}>{({ default: Part }) => <Part {...props} />}</Show>;
  };
}
