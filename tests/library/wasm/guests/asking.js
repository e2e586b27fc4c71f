// Calls a function of the host.
import { decode } from "wasmcp:mcp-v20251125/server-auth@0.1.1";

export function ask() {
  try {
    decode(new Uint8Array([1, 2]));
    return "decoded";
  } catch {
    return "refused";
  }
}
