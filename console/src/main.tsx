/** Begins the page. */
import { render } from "preact";
import { App } from "./app";
import { begin } from "./session";
import "./style/index.css";

const place = document.getElementById("app");
if (place) {
  render(<App />, place);
  void begin();
}
