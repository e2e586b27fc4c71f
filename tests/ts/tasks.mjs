// Official clients follow one task of each outcome, and print what they saw as one JSON object.
//
//   node tasks.mjs '{"version": "2025-11-25", "url": "http://...", "prefix": "server__"}'
//   node tasks.mjs '{"version": "2025-11-25", "command": ["python", "..."], "prefix": ""}'
//
// 2025-11-25 is spoken by version 1 of the SDK, which has tasks; 2026-07-28 by the package of the
// extension, on top of version 2.

import { Client as ModernClient, StreamableHTTPClientTransport as ModernHttp } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, toolDeclarationFromMcpTool } from '@modelcontextprotocol/ext-tasks/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const { version, url, command, prefix, calls } = JSON.parse(process.argv[2]);
const accepted = { action: 'accept', content: { confirm: true } };
const seen = {};

const shown = result => (result.isError ? 'error: ' : '') + result.content[0].text;

async function legacy() {
    const client = new Client(
        { name: 'tests-ts', version: '1.0.0' },
        { capabilities: { elicitation: { form: {} }, tasks: { list: {}, cancel: {} } } }
    );
    client.setRequestHandler(ElicitRequestSchema, async () => accepted);
    const [first, ...rest] = command ?? [];
    await client.connect(
        command ? new StdioClientTransport({ command: first, args: rest }) : new StreamableHTTPClientTransport(new URL(url))
    );
    seen.tasks = client.getServerCapabilities().tasks;
    const { tools } = await client.listTools();
    for (const [name, args] of Object.entries(calls)) {
        const told = [];
        const tool = prefix + name;
        const stream = client.experimental.tasks.callToolStream({ name: tool, arguments: args }, CallToolResultSchema, {
            task: { ttl: 60000 }
        });
        for await (const message of stream) {
            if (message.type === 'result') told.push(shown(message.result));
            else if (message.type === 'error') told.push(`thrown: ${message.error.message}`);
            else if (message.type === 'taskCreated') told.push(message.task.status);
        }
        seen[name] = told;
    }
    seen.listed = seen.tasks.list ? (await client.experimental.tasks.listTasks()).tasks.length : null;
    seen.support = tools.find(tool => tool.name === prefix + 'slow_compute').execution.taskSupport;
    await client.close();
}

let number = 1000;
async function dispatch(request) {
    const { method, params } = request;
    const response = await fetch(url, {
        method: 'POST',
        headers: {
            'content-type': 'application/json',
            accept: 'application/json, text/event-stream',
            'mcp-protocol-version': version,
            'mcp-method': method,
            'mcp-name': params.name ?? params.taskId
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: number++, method, params })
    });
    const body = await response.text();
    if (!response.headers.get('content-type').startsWith('text/event-stream')) return JSON.parse(body);
    const events = body.split('\n').filter(line => line.startsWith('data: {'));
    return events.map(line => JSON.parse(line.slice(6))).find(message => 'id' in message);
}

async function modern() {
    const clientInfo = { name: 'tests-ts', version: '1.0.0' };
    const client = new ModernClient(clientInfo, { versionNegotiation: { mode: { pin: version } } });
    await client.connect(new ModernHttp(new URL(url)));
    const clientCapabilities = { elicitation: { form: {} } };
    const { tools } = await client.listTools();
    const session = createTaskSessionFromClient(client, {
        endpointId: 'tests',
        rawDispatch: dispatch,
        v2RequestFraming: { protocolVersion: version, clientInfo, clientCapabilities },
        tools: { currentTool: name => toolDeclarationFromMcpTool(tools.find(tool => tool.name === name)) },
        onInputRequest: async () => accepted
    });
    for (const [name, args] of Object.entries(calls)) {
        const execution = await session.callTool(prefix + name, args);
        const { outcome } = await execution.settle();
        const said = outcome.status === 'completed' ? shown(outcome.result) : `thrown: ${outcome.error?.message}`;
        seen[name] = [execution.kind, said];
    }
    await session.close();
    await client.close();
}

await (version >= '2026-07-28' ? modern() : legacy());
console.log(JSON.stringify(seen));
process.exit(0);
