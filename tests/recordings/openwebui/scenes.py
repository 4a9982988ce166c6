"""What a person does in Open WebUI, scene by scene."""

from __future__ import annotations

import base64
from collections.abc import Callable

from endpoint import Endpoint
from playwright.sync_api import Page
from program import OpenWebUI


class Window:
    """The pages of Open WebUI in a browser, used as a person uses them."""

    def __init__(self, page: Page, program: OpenWebUI, endpoint: Endpoint) -> None:
        self.page, self.program, self.endpoint = page, program, endpoint
        page.set_default_timeout(15_000)

    def new_chat(self, model: str = "assistant", **query: str) -> None:
        more = "".join(f"&{name}={value}" for name, value in query.items())
        self.page.goto(f"{self.program.url}/?model={model}{more}")
        self.page.wait_for_selector("#chat-input")
        greeting = self.page.get_by_role("button", name="Okay, Let's Go!")
        self.page.wait_for_timeout(2500)
        if greeting.count():
            greeting.click()
        self.page.wait_for_timeout(500)

    def say(self, text: str, *, wait: bool = True) -> None:
        self.page.locator("#chat-input").click()
        self.page.keyboard.type(text)
        self.page.wait_for_timeout(500)
        self.page.keyboard.press("Enter")
        self.page.wait_for_timeout(1500)
        if wait:
            self.endpoint.settle()

    def press(self, label: str, *, last: bool = True) -> None:
        """A button by its label. Some show only under the pointer, or lie under others: so not by the pointer."""
        found = self.page.locator(f'button[aria-label="{label}"]')
        (found.last if last else found.first).evaluate("button => button.click()")
        self.page.wait_for_timeout(1000)

    def chat_id(self) -> str:
        return self.page.url.rsplit("/", 1)[-1].split("?")[0]


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"  # 8x8, red
)
DOUBLE = '''class Tools:
    def double(self, number: int) -> str:
        """
        Twice a number.
        :param number: the number
        """
        return str(2 * number)
'''


def two_turns(window: Window) -> None:
    """A chat of two turns, with the title, the tags and the follow-ups that come beside them."""
    window.new_chat()
    window.say("Is this a test?")
    window.say("And this?")


def regenerate(window: Window) -> None:
    """The last answer is made again; the chat continues from the new one."""
    window.new_chat()
    window.say("Is this a test?")
    window.say("Tell me more.")
    window.press("Regenerate")
    window.page.get_by_text("Try Again", exact=True).click()
    window.page.wait_for_timeout(1500)
    window.endpoint.settle()
    window.say("Thanks.")


def edit_a_question(window: Window) -> None:
    """The first of two questions is changed and sent again."""
    window.new_chat()
    window.say("Is this a test?")
    window.say("Tell me more.")
    window.press("Edit", last=False)
    window.page.locator("textarea:visible").first.fill("Is this an exam?")
    window.page.locator("#confirm-edit-message-button").first.click()
    window.page.wait_for_timeout(1500)
    window.endpoint.settle()
    window.say("Thanks.")


def edit_an_answer(window: Window) -> None:
    """The person changes the text of the answer, and asks again."""
    window.new_chat()
    window.say("Is this a test?")
    window.press("Edit")
    window.page.locator("textarea:visible").first.fill("No, it is serious.")
    window.page.get_by_role("button", name="Save", exact=True).first.click()
    window.page.wait_for_timeout(1500)
    window.say("Really?")


def stop(window: Window) -> None:
    """The stop button in the middle of an answer, then the next question."""
    window.new_chat()
    window.say("Count slowly.", wait=False)
    window.page.wait_for_timeout(2000)
    window.press("Stop")
    window.endpoint.settle()
    window.say("Why did you stop?")


def continue_an_answer(window: Window) -> None:
    """The button "Continue Response": the history ends with the assistant's message."""
    window.new_chat()
    window.say("Is this a test?")
    window.press("Continue Response")
    window.endpoint.settle()
    window.say("Thanks.")


def own_tools(window: Window) -> None:
    """The model calls one of the tools that Open WebUI offers with every chat, and the chat continues after it."""
    window.new_chat()
    window.say("What time is it?")
    window.say("Thanks.")


def thoughts(window: Window) -> None:
    """An answer with `reasoning_content`, and what of it comes back with the next question."""
    window.new_chat()
    window.say("Think first.")
    window.say("Thanks.")


def group_chat(window: Window) -> None:
    """A team of two, whose answer has headings."""
    window.new_chat("writers")
    window.say("Write a line.")
    window.say("Shorter.")


def temporary_chat(window: Window) -> None:
    """A chat that Open WebUI does not keep."""
    window.new_chat(**{"temporary-chat": "true"})
    window.say("Is this a test?")
    window.say("And this?")


def another_model(window: Window) -> None:
    """The second question of a chat goes to another model."""
    window.new_chat()
    window.say("Is this a test?")
    chat = window.chat_id()
    window.page.goto(f"{window.program.url}/c/{chat}?model=writers")
    window.page.wait_for_selector("#model-selector-model-button")
    window.page.wait_for_timeout(2500)
    window.page.locator("#model-selector-model-button").click()
    window.page.wait_for_timeout(1000)
    window.page.get_by_role("option", name="writers").first.click()
    window.page.wait_for_timeout(1000)
    window.say("Write a line.")


def fork(window: Window) -> None:
    """A copy of a chat from an answer in its middle, continued."""
    window.new_chat()
    window.say("Is this a test?")
    window.say("Tell me more.")
    window.press("Fork chat", last=False)
    window.page.wait_for_timeout(3000)
    window.say("And another way?")


def image(window: Window) -> None:
    """A picture beside the text."""
    window.new_chat()
    file = {"name": "red.png", "mimeType": "image/png", "buffer": base64.b64decode(PIXEL)}
    window.page.locator('input[type="file"]').first.set_input_files([file])  # type: ignore[list-item]
    window.page.wait_for_timeout(2500)
    window.say("What colour is this?")
    window.say("Thanks.")


def document(window: Window) -> None:
    """A text file beside the question: embeddings, a query, and the text in the message."""
    window.new_chat()
    text = b"The lighthouse of Ada is 42 metres high. It was built in 1815."
    file = {"name": "lighthouse.txt", "mimeType": "text/plain", "buffer": text}
    window.page.locator('input[type="file"]').first.set_input_files([file])  # type: ignore[list-item]
    window.page.wait_for_timeout(5000)
    window.say("How high is the lighthouse?")
    window.say("Thanks.")


def settings(window: Window) -> None:
    """A person's own system prompt and parameters, as its settings page stores them."""
    parameters = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 99, "seed": 7, "stop": ["END"]}
    parameters |= {"frequency_penalty": 0.1, "presence_penalty": 0.2, "reasoning_effort": "low"}
    told = {
        "system": "You are a pirate.",
        "params": parameters,
        "version": window.program.get("/api/version")["version"],
    }
    window.program.post("/api/v1/users/user/settings/update", {"ui": told})
    window.new_chat()
    window.say("Is this a test?")
    window.say("And this?")
    window.program.post("/api/v1/users/user/settings/update", {"ui": {**told, "system": "", "params": {}}})


def legacy_tools(window: Window) -> None:
    """Function calling "legacy": the tools are in a prompt of their own, and what they return is put around the
    question, in a prompt that begins like those of housekeeping, and only in the request that asks it."""
    tool = {"id": "double", "name": "Double", "content": DOUBLE, "meta": {"description": "Doubles."}}
    window.program.post("/api/v1/tools/create", tool)
    version = window.program.get("/api/version")["version"]
    told = {"version": version, "params": {"function_calling": "legacy"}}
    window.program.post("/api/v1/users/user/settings/update", {"ui": told})
    window.new_chat(tools="double")
    window.say("What is twice 21?")
    window.say("Thanks.")
    window.program.post("/api/v1/users/user/settings/update", {"ui": {**told, "params": {}}})


def tasks(window: Window) -> None:
    """The tasks that need a setting or a feature: through Open WebUI's HTTP interface, as its pages call it."""
    program = window.program
    talk = [{"role": "user", "content": "Is this a test?"}, {"role": "assistant", "content": "Answer 1: yes."}]
    asked = {"model": "assistant", "messages": talk, "chat_id": "00000000-0000-4000-8000-0000000000aa"}
    program.post(
        "/api/v1/tasks/config/update", {**program.get("/api/v1/tasks/config"), "ENABLE_AUTOCOMPLETE_GENERATION": True}
    )
    more = {"prompt": "What is a lighthouse", "type": "search query", "stream": False}
    program.post("/api/v1/tasks/auto/completions", {**asked, **more})
    for kind in ("web_search", "retrieval"):
        program.post(
            "/api/v1/tasks/queries/completions", {**asked, "type": kind, "prompt": "How high is a lighthouse?"}
        )
    program.post("/api/v1/tasks/image_prompt/completions", {**asked, "prompt": "Draw a lighthouse."})
    program.post("/api/v1/tasks/emoji/completions", {**asked, "prompt": "This is a test."})
    program.post("/api/v1/tasks/title/completions", asked)
    program.post("/api/v1/tasks/tags/completions", asked)
    program.post("/api/v1/tasks/follow_up/completions", asked)
    merged = {"prompt": "Is this a test?", "responses": ["It is.", "It is not."], "stream": False}
    program.post("/api/v1/tasks/moa/completions", {"model": "assistant", **merged})


def compaction(window: Window) -> None:
    """A long chat is shortened by a summary, which then stands in a system message."""
    known = window.program.get("/api/v1/chats/config")
    changed = {"ENABLE_CONTEXT_COMPACTION": True, "CONTEXT_COMPACTION_TOKEN_THRESHOLD": 100}
    window.program.post("/api/v1/chats/config", {**known, **changed})
    window.new_chat()
    for number in range(3):
        window.say(f"Question {number}: " + "why is the sea salt and the sky wide? " * 15)
    window.say("And now?")
    window.program.post("/api/v1/chats/config", known)


Scene = Callable[[Window], None]
DEFAULTS: list[Scene] = [two_turns, regenerate, edit_a_question, edit_an_answer, stop, continue_an_answer, own_tools]
DEFAULTS += [thoughts, group_chat, temporary_chat, another_model, fork, image, document]
CHANGED: list[Scene] = [settings, legacy_tools, tasks, compaction]
NAMED: list[Scene] = [two_turns, regenerate, edit_a_question, stop, own_tools, another_model, temporary_chat]
"""With the chat's id and the user in headers, and a task model that is not the chat's."""
STARTS: list[tuple[str, dict[str, str], list[Scene]]] = [
    ("", {}, DEFAULTS + CHANGED),
    ("named_", {"ENABLE_FORWARD_USER_INFO_HEADERS": "true", "TASK_MODEL_EXTERNAL": "writers"}, NAMED),
]
