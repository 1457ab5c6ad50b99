// A page without a browser: runs prompts with the AG-UI client, and answers their interrupts.
// usage: node ag_ui_client.mjs URL NODE_MODULES '[["prompt", [["resolved", payload], ...]], ...]'
import { createRequire } from "node:module"

const [url, modules, turns] = process.argv.slice(2)
const { HttpAgent } = createRequire(modules + "/")("@ag-ui/client")
const agent = new HttpAgent({ url, threadId: "page" })
const asked = []

for (const [content, answers] of JSON.parse(turns)) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content })
  await agent.runAgent()
  for (const [status, payload] of answers) {
    asked.push(agent.pendingInterrupts.map(({ reason, message }) => [reason, message]))
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status, payload }))
    await agent.runAgent({ resume })
  }
}
const messages = agent.messages.map(({ role, content }) => [role, content ?? null])
console.log(JSON.stringify({ asked, left: agent.pendingInterrupts, messages }))
