// Middleware that does nothing.
import { handle } from "portico:mcp/handler@0.1.0";

export const handler = { handle };
