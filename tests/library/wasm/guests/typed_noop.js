// Middleware of wasmcp's newest interface that does nothing.
import { handle } from "wasmcp:mcp-v20251125/server-handler@0.1.1";

export const serverHandler = { handle };
