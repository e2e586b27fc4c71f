// Middleware of wasmcp's newest interface; what it does depends on the tool that is called.
import { handle as next } from "wasmcp:mcp-v20251125/server-handler@0.1.1";
import { Session } from "wasmcp:mcp-v20251125/sessions@0.1.1";

const added = ["triple", "count", "kept", "strange", "none", "wrong", "context", "loop", "listing"];
const schema = JSON.stringify({ type: "object" });
const text = (value) => ({ tag: "text", val: { text: { tag: "text", val: value } } });
const said = (value) => ({ tag: "ok", val: { tag: "tools-call", val: { content: [text(String(value))] } } });
const failed = (code, message) => ({ tag: "err", val: { tag: "mcp", val: { code, message } } });
const reason = (error) => { const p = error?.payload ?? error; return p?.val?.message ?? p?.val ?? p?.tag ?? String(p); };

function call(ctx, id, name, args) {
  const request = { tag: "tools-call", val: { name, arguments: JSON.stringify(args) } };
  const answer = next(ctx, { tag: "request", val: [id, request] });
  return answer.tag === "err" ? `error ${answer.val.val.message}` : answer.val.val.content[0].val.text.val;
}

const opened = (ctx, id) => Session.open(id ?? ctx.session.sessionId, ctx.session.storeId);

function answer(ctx, id, request, message) {
  const args = JSON.parse(request.val.arguments ?? "{}");
  switch (request.val.name) {
    case "triple": return said([1, 2, 3].map((n) => call(ctx, id, args.tool, { text: String(n) })).join(" "));
    case "count": {
      const session = opened(ctx);
      const value = Number(session.get("calls")?.val ?? 0) + 1;
      session.set("calls", { tag: "as-u64", val: value });
      return said(`${session.get("calls").tag} ${session.get("calls").val}`);
    }
    case "kept":
      opened(ctx).set("name", { tag: "as-string", val: args.value });
      return said(opened(ctx).get("name").val.length);
    case "strange": opened(ctx, "another"); return said("opened");
    case "none": return undefined;
    case "wrong": return { tag: "ok", val: { tag: "prompts-list", val: { prompts: [] } } };
    case "context": return said(JSON.stringify([ctx.protocolVersion, String(ctx.clientStream ?? "none"), ctx.session.storeId]));
    case "loop": for (;;);
    case "listing": {
      const listed = next(ctx, { tag: "request", val: [id, { tag: "tools-list", val: {} }] });
      return said(listed.tag === "err" ? listed.val.val.message : listed.val.val.tools.map((one) => one.name).join());
    }
    default:
      return args.text === "refuse" ? failed(-31000, "refused") : next(ctx, message);
  }
}

function handled(ctx, message) {
  if (message.tag !== "request") return undefined;
  const [id, request] = message.val;
  if (request.tag === "tools-call") return answer(ctx, id, request, message);
  const outcome = next(ctx, message);
  if (request.tag !== "tools-list" || outcome.tag === "err") return outcome;
  const tools = outcome.val.val.tools.filter((one) => !one.name.endsWith("secret"));
  outcome.val.val.tools = [...tools, ...added.map((name) => ({ name, inputSchema: schema }))];
  return outcome;
}

export const serverHandler = {
  handle(ctx, message) {
    try {
      return handled(ctx, message);
    } catch (error) {
      return said(`refused: ${reason(error)}`);
    }
  },
};
