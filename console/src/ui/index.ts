/** What pages are made of. What is large (the editor, Markdown, differences) is imported where it is needed. */
export { acts, Table, type Column } from "./table";
export { Area, Button, CopyButton, Dialog, Field, Folded, isSending, LinkButton, optionsOf, SearchField, SearchSelect, Select, Tabs } from "./controls";
export { ConfirmButton, DialogButton, Form, FormButton, numberOf, SearchForm, type Given } from "./form";
export { Json, jsonOf, objectOf } from "./json";
export { allOf, eachOf, paged, useListing, useLoaded, type After, type Known, type Listing } from "./load";
export { Facts, Figures, PageHead, type Figure } from "./page";
export { csv, save } from "./save";
export { Empty, later, Loading, Problem, Rest, Show } from "./state";
export { messageOf, tell, tellError, Toasts } from "./toast";
export { bytes, clock, count, duration, Lasting, money, now, Status, Time } from "./values";
