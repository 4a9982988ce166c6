/** The text of a document in CodeMirror: its words coloured, completed from a schema, and what is wrong underlined. */
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useRef } from "preact/hooks";
import { complete, type Schema } from "./completion";
import type { Format, Span, Trouble } from "./places";

export interface EditorProps {
  label: string;
  text: string;
  format: Format;
  onText?: (text: string) => void;
  troubles?: readonly Trouble[];
  schema?: Schema | null;
  tools?: readonly string[];
  /** Where the cursor is put, whenever this is another object. */
  shown?: Span | null;
}

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--live)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
]);

const look = EditorView.theme({
  "&": { height: "100%", fontSize: "0.92em", backgroundColor: "var(--page)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent-soft) 45%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line-strong)", borderRadius: "var(--radius)" },
  ".cm-tooltip.cm-completionInfo": { maxWidth: "22rem", padding: "0.4rem 0.6rem" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-fill)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "inherit", fontStyle: "normal" },
  ".cm-diagnostic": { overflowWrap: "anywhere", maxWidth: "36rem" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--warn)" },
  ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)" },
  ".cm-lintRange-warning": { backgroundImage: "none", textDecoration: "underline wavy var(--warn)" },
});

/** What is typed over a selection is put in its place here: the browser would keep the selection's look as inline styles,
 * which the page's policy forbids, and says so each time. */
function typedOver(event: InputEvent, view: EditorView): boolean {
  const { data: text, inputType } = event;
  if (inputType !== "insertText" || text === null || view.composing || view.state.readOnly) return false;
  const seen = document.getSelection();
  let { from, to } = view.state.selection.main;
  if (from === to && seen?.anchorNode && seen.focusNode && !seen.isCollapsed) {
    const ends = [view.posAtDOM(seen.anchorNode, seen.anchorOffset), view.posAtDOM(seen.focusNode, seen.focusOffset)];
    [from, to] = [Math.min(...ends), Math.max(...ends)];
  }
  if (from === to) return false;
  event.preventDefault();
  const put = () => view.state.update({ changes: { from, to, insert: text }, selection: { anchor: from + text.length }, userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, text, put))) view.dispatch(put());
  return true;
}

/** The page's policy lets styles in by this word. */
const nonce = () => document.querySelector<HTMLMetaElement>("meta[name=csp-nonce]")?.content ?? "";

export default function EditorField({ label, text, format, onText, troubles = [], schema = null, tools = [], shown = null }: EditorProps) {
  const place = useRef<HTMLDivElement>(null);
  const made = useRef<EditorView | null>(null);
  const parts = useRef(new Compartment());
  const heard = useRef(onText);
  heard.current = onText;
  const changing = () => [
    format === "json" ? json() : yaml(),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    onText ? [] : [EditorState.readOnly.of(true), EditorView.editable.of(false)],
    schema ? autocompletion({ override: [complete(schema, format, tools)] }) : [],
  ];
  useEffect(() => {
    const view = new EditorView({
      parent: place.current!,
      state: EditorState.create({
        doc: text,
        extensions: [
          EditorView.cspNonce.of(nonce()),
          [lineNumbers(), foldGutter(), lintGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(), highlightActiveLine()],
          [indentUnit.of("  "), EditorView.lineWrapping, syntaxHighlighting(colours), look],
          keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, { key: "Alt-Enter", run: startCompletion }]),
          EditorView.domEventHandlers({ beforeinput: typedOver }),
          EditorView.updateListener.of((update) => update.docChanged && heard.current?.(update.state.doc.toString())),
          parts.current.of(changing()),
        ],
      }),
    });
    made.current = view;
    return () => view.destroy();
  }, []);
  useEffect(() => made.current?.dispatch({ effects: parts.current.reconfigure(changing()) }), [format, label, schema, tools.join("\n"), !onText]);
  useEffect(() => {
    const view = made.current;
    const old = view?.state.doc.toString();
    if (view && old !== text) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
  }, [text]);
  useEffect(() => {
    const view = made.current;
    if (!view) return;
    const last = view.state.doc.length;
    const told = troubles.map((each) => ({ from: Math.min(each.from, last), to: Math.min(each.to, last), severity: each.severity, message: each.text }));
    view.dispatch(setDiagnostics(view.state, told));
  }, [troubles]);
  useEffect(() => {
    const view = made.current;
    if (!view || !shown) return;
    view.dispatch({ selection: { anchor: Math.min(shown.from, view.state.doc.length) }, scrollIntoView: true });
    view.focus();
  }, [shown]);
  return <div class="code-editor" ref={place} />;
}
