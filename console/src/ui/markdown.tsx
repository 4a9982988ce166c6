/** Markdown as elements. What models write is read into a tree and never into HTML: no text becomes markup. */
import { marked, type Token, type Tokens } from "marked";
import { createContext, Fragment, type ComponentChildren } from "preact";
import { useContext, useMemo } from "preact/hooks";
import { t } from "../words";
import { CopyButton } from "./controls";

/** Links that lead to other pages; anything else (`javascript:`, `data:`) is shown as text. */
const SAFE = /^(https?:|mailto:)/i;

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!SAFE.test(href)) return <span>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

export function Code({ text, language }: { text: string; language?: string | undefined }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{language}</span>
        <CopyButton text={text} />
      </figcaption>
      <pre tabIndex={0}>
        <code>{text}</code>
      </pre>
    </figure>
  );
}

/** Texts of tokens hold entities where they come from a text, and not where they come from code. */
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0" };
const plain = (text: string) => text.replace(/&(amp|lt|gt|quot|#39|nbsp);/g, (_, name: string) => ENTITIES[name] ?? "");

/** What stands in the place of a mark by which an answer cites a passage. */
const Marks = createContext<((name: string) => ComponentChildren) | null>(null);

function Words({ text }: { text: string }) {
  const shown = useContext(Marks);
  if (shown === null || !text.includes("【")) return <>{text}</>;
  return <>{text.split(/【([0-9a-f]{8})】/).map((part, n) => (n % 2 ? <Fragment key={n}>{shown(part)}</Fragment> : part))}</>;
}

function Inline({ tokens }: { tokens: readonly Token[] | undefined }): ComponentChildren {
  return tokens?.map((token, n) => <Piece key={n} token={token} />);
}

function Table({ token }: { token: Tokens.Table }) {
  const cell = (each: Tokens.TableCell, n: number, Kind: "th" | "td") => (
    <Kind key={n} style={each.align ? { textAlign: each.align } : {}}>
      <Inline tokens={each.tokens} />
    </Kind>
  );
  return (
    <div class="scroll-x" tabIndex={0}>
      <table>
        <thead>
          <tr>{token.header.map((each, n) => cell(each, n, "th"))}</tr>
        </thead>
        <tbody>
          {token.rows.map((row, n) => (
            <tr key={n}>{row.map((each, place) => cell(each, place, "td"))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Items({ token }: { token: Tokens.List }) {
  const items = token.items.map((item, n) => (
    <li key={n}>
      {item.task && <input type="checkbox" checked={item.checked ?? false} disabled aria-label={item.text} />}
      <Inline tokens={item.tokens.filter((each) => each.type !== "checkbox")} />
    </li>
  ));
  return token.ordered ? <ol start={Number(token.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

/** Tokens that are one element around what they hold. The page has the first two levels of headings. */
const AROUND = { paragraph: "p", strong: "strong", em: "em", del: "del", blockquote: "blockquote", heading: "h3" } as const;

function Piece({ token }: { token: Token }): ComponentChildren {
  if (token.type in AROUND) {
    const Around = token.type === "heading" ? (`h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as "h3") : AROUND[token.type as keyof typeof AROUND];
    return (
      <Around>
        <Inline tokens={(token as Tokens.Generic).tokens} />
      </Around>
    );
  }
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "text":
      return token.tokens ? <Inline tokens={token.tokens} /> : <Words text={plain(token.text as string)} />;
    case "escape":
      return plain(token.text as string);
    case "codespan":
      return <code>{plain(token.text as string)}</code>;
    case "code":
      return <Code text={token.text as string} language={(token as Tokens.Code).lang} />;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "list":
      return <Items token={token as Tokens.List} />;
    case "table":
      return <Table token={token as Tokens.Table} />;
    case "link":
      return (
        <Link href={token.href as string}>
          <Inline tokens={token.tokens} />
        </Link>
      );
    case "image":
      // Loading it would tell another host who reads this; the policy of the page forbids it as well.
      return <Link href={token.href as string}>{(token.text as string) || (token.href as string)}</Link>;
    default:
      return token.raw;
  }
}

/** `mark`: what is shown for 【name】, a mark of citations. */
export function Markdown({ text, mark }: { text: string; mark?: (name: string) => ComponentChildren }) {
  const tokens = useMemo(() => marked.lexer(text), [text]);
  return (
    <Marks.Provider value={mark ?? null}>
      <div class="markdown">
        <Inline tokens={tokens} />
      </div>
    </Marks.Provider>
  );
}

/** What a model thought, folded; or something else of its that is no part of the answer. */
export function Thought({ text, title = t("is.thoughts") }: { text: string; title?: string }) {
  return (
    <details class="thought">
      <summary>{title}</summary>
      <Markdown text={text} />
    </details>
  );
}
