// A page for people, over the AG-UI client from npm: prompts, messages, and a form for each interrupt.
import { HttpAgent } from "@ag-ui/client"

const agent = new HttpAgent({ url: "/", threadId: "page" })
const byId = (id) => document.getElementById(id)

function element(name, text = "", more = {}) {
  const made = Object.assign(document.createElement(name), more)
  made.append(text)
  return made
}

function form({ id, message, reason }) {
  const field = element("input", "", { ariaLabel: "Note" })
  const send = (payload) => run({ resume: [{ interruptId: id, status: "resolved", payload }] })
  const button = (text, payload) => element("button", text, { onclick: () => send(payload()) })
  const buttons = reason === "needs_answer" ? [button("Answer", () => field.value)] : [
    button("Allow", () => ({ verdict: "allow" })),
    button("Edit", () => ({ verdict: "allow", arguments: JSON.parse(field.value) })),
    button("Deny", () => ({ verdict: "deny", note: field.value })),
    button("Respond", () => ({ verdict: "respond", note: field.value })),
  ]
  const made = element("fieldset", element("legend", message))
  made.append(field, ...buttons)
  return made
}

function show() {
  const texts = agent.messages.map(({ role, content, toolCalls = [] }) =>
    [role, content, ...toolCalls.map((call) => `calls ${call.function.name}`)].filter(Boolean).join(": "))
  byId("messages").replaceChildren(...texts.map((text) => element("li", text)))
  byId("review").replaceChildren(...agent.pendingInterrupts.map(form))
}

async function run(parameters) {
  byId("review").replaceChildren()
  await agent.runAgent(parameters, { onEvent: show })
  show()
  document.body.dataset.runs = Number(document.body.dataset.runs || 0) + 1
}

document.querySelector("form").onsubmit = (event) => {
  event.preventDefault()
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: byId("prompt").value })
  run()
}
