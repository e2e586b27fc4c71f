// The official TypeScript client uses every feature of tests/interop/servers/features.py once and
// prints what it saw as one JSON object.
//
//   node client.mjs '{"version": "2026-07-28", "url": "http://..."}'
//   node client.mjs '{"version": "2025-11-25", "command": ["python", "..."]}'

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
// Version 2 of the SDK has no WebSocket; the transport of version 1 fits its client.
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';

const { version, url, command } = JSON.parse(process.argv[2]);
const modern = version >= '2026-07-28';
const seen = {};
const waiting = new Map();

function transport() {
    if (command) return new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: 'inherit' });
    if (url.startsWith('ws:')) return new WebSocketClientTransport(new URL(url));
    if (url.endsWith('/sse')) return new SSEClientTransport(new URL(url));
    return new StreamableHTTPClientTransport(new URL(url));
}

// A promise for the next notification of a kind; asked for before what causes it.
function next(kind) {
    return new Promise(resolve => waiting.set(kind, resolve));
}

function hear(kind) {
    client.setNotificationHandler(kind, ({ params }) => {
        waiting.get(kind)?.(params ?? {});
        waiting.delete(kind);
    });
}

async function codeOf(promise) {
    try {
        await promise;
        return null;
    } catch (error) {
        return error.code;
    }
}

const client = new Client(
    { name: 'tests-ts', version: '1.0.0' },
    {
        capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
        versionNegotiation: { mode: modern ? { pin: version } : 'legacy' },
        ...(modern ? {} : { supportedProtocolVersions: [version] })
    }
);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ada' } }));
client.setRequestHandler('sampling/createMessage', async () => ({
    role: 'assistant',
    content: { type: 'text', text: '42' },
    model: 'tiny'
}));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///work' }] }));
for (const kind of ['tools/list_changed', 'resources/updated', 'message']) hear(`notifications/${kind}`);

const text = async (name, args, options) => {
    const result = await client.callTool({ name, arguments: args ?? {} }, options);
    return (result.isError ? 'error: ' : '') + (result.content[0]?.text ?? result.content[0]?.type);
};

await client.connect(transport());
seen.version = client.getNegotiatedProtocolVersion();
seen.server = client.getServerVersion()?.name;
seen.instructions = client.getInstructions();

seen.tools = (await client.listTools()).tools.map(tool => tool.name);
seen.resources = (await client.listResources()).resources.map(resource => resource.uri);
seen.templates = (await client.listResourceTemplates()).resourceTemplates.map(template => template.uriTemplate);
seen.prompts = (await client.listPrompts()).prompts.map(prompt => prompt.name);

seen.content = {};
for (const tool of ['text', 'picture', 'sound', 'embedded', 'pointer'])
    seen.content[tool] = (await client.callTool({ name: tool, arguments: {} })).content[0].type;
seen.structured = (await client.callTool({ name: 'weather', arguments: { city: 'Oslo' } })).structuredContent ?? null;
seen.failed = await text('fail');
seen.unknownTool = await codeOf(client.callTool({ name: 'nobody', arguments: {} }));

seen.note = (await client.readResource({ uri: 'note://one' })).contents[0].text;
seen.day = (await client.readResource({ uri: 'day://may/1' })).contents[0].text;
seen.unknownResource = await codeOf(client.readResource({ uri: 'note://nobody' }));
seen.greeting = (await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } })).messages[0].content.text;
seen.tones = (
    await client.complete({ ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'tone', value: 'k' } })
).completion.values;

const logged = next('notifications/message');
if (modern) {
    await client.callTool({ name: 'chatter', arguments: {}, _meta: { 'io.modelcontextprotocol/logLevel': 'error' } });
} else {
    await client.setLoggingLevel('error');
    await client.callTool({ name: 'chatter', arguments: {} });
}
seen.logged = (await logged).level;

seen.named = await text('ask_name');
seen.model = await text('ask_model', { prompt: 'six times seven' });
seen.roots = await text('ask_roots');

// The call is aborted by its own first progress, so both are shown.
const aborter = new AbortController();
const token = `ts-${version}-${process.pid}`;
const hanging = client
    .callTool({ name: 'wait_forever', arguments: { token } }, { signal: aborter.signal, onprogress: () => aborter.abort() })
    .then(() => 'it returned', () => 'aborted');
seen.hanging = await hanging;
seen.cancelled = await text('was_cancelled', { token });

const changed = next('notifications/tools/list_changed');
const updated = next('notifications/resources/updated');
let listening;
if (modern) {
    listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['note://one'] });
} else {
    await client.subscribeResource({ uri: 'note://one' });
}
await text('grow', { kind: 'tools' });
await changed;
seen.changed = true;
await text('shrink', { kind: 'tools' });
await text('touch', { uri: 'note://one' });
seen.updated = (await updated).uri;
await listening?.close();

await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
