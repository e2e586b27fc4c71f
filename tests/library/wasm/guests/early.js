// Middleware of wasmcp's first interface that does nothing.
import { handleRequest, handleResponse, handleNotification } from "wasmcp:server/handler@0.1.0-beta.2";

export const handler = { handleRequest, handleResponse, handleNotification };
