/** Parts of the page that are loaded when they are first shown. */
import type { ComponentType } from "preact";
import { useLoaded } from "./load";
import { Show } from "./state";

/** The component that a module has as its default. */
export function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  return function Later(props: P) {
    const made = useLoaded(load, []);
    // A module that could not be loaded may be of a server that was replaced: the page of the new one names its own.
    return <Show of={{ ...made, reload: () => location.reload() }}>{({ default: Part }) => <Part {...props} />}</Show>;
  };
}
