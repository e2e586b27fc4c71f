// An official client calls tools whose calls become tasks, and prints what it saw as one JSON object.
// It has listed the tools, so it checks every result against its output schema.
//
//   node promotion.mjs '{"sdk": 1, "url": "http://...", "calls": [["tool", {...}]]}'
//   node promotion.mjs '{"sdk": 2, "version": "2026-07-28", "command": ["portico", "..."], "calls": [...]}'

import { Client as Client2, StreamableHTTPClientTransport as Http2 } from '@modelcontextprotocol/client';
import { StdioClientTransport as Stdio2 } from '@modelcontextprotocol/client/stdio';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as Stdio1 } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as Http1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { sdk, version, url, command, calls } = JSON.parse(process.argv[2]);
const [Client, Http, Stdio] = sdk === 1 ? [Client1, Http1, Stdio1] : [Client2, Http2, Stdio2];
const mode = version >= '2026-07-28' ? { pin: version } : 'legacy';
const client = new Client({ name: 'tests-ts', version: '1.0.0' }, sdk === 1 ? {} : { versionNegotiation: { mode } });
await client.connect(command ? new Stdio({ command: command[0], args: command.slice(1) }) : new Http(new URL(url)));

const { tools } = await client.listTools();
const structured = tools.filter(tool => tool.outputSchema).map(tool => tool.name);
const seen = [];
for (const [name, args] of calls) {
    const first = await client.callTool({ name, arguments: args });
    const id = first.structuredContent?.task_id;
    const last = id ? await client.callTool({ name: 'task_status', arguments: { task_id: id, wait_s: 50 } }) : first;
    seen.push([Boolean(id), last.structuredContent]);
}
await client.close();
console.log(JSON.stringify({ structured, seen }));
process.exit(0);
