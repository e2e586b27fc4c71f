// An authorization server by others (oidc-provider), and an MCP server in front of which it stands.
//
//   node oidc.mjs '{"life_s": 60}'
//
// Prints its origin. The MCP server is at /mcp; /test/... is for tests.

import http from 'node:http';
import Provider from 'oidc-provider';

const { life_s = 3600, described = false, machines = [] } = JSON.parse(process.argv[2] ?? '{}');
const seen = { token: [], register: 0, revoked: 0, calls: [] };
const issued = new Set();

// A tool whose name ends in the name of a scope needs that scope.
const scopeOf = (tool = '') => ['mcp:write'].find((scope) => tool.endsWith(scope.slice(4)));

const server = http.createServer();
server.listen(0, '127.0.0.1', () => {
    const origin = `http://127.0.0.1:${server.address().port}`;
    const resource = `${origin}/mcp`;
    const document = {
        client_id: 'https://portico.test/client.json',
        client_name: 'Portico at home',
        redirect_uris: ['http://127.0.0.1/callback'],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none',
        application_type: 'native'
    };
    const provider = new Provider(origin, {
        claims: { openid: ['sub', 'email'], email: ['email'] },
        conformIdTokenClaims: false,
        scopes: ['openid', 'offline_access', 'mcp:read', 'mcp:write'],
        clients: [
            { ...document, client_id: 'by-hand', client_name: 'By hand' },
            ...machines.map((machine) => ({
                grant_types: ['client_credentials'],
                redirect_uris: [],
                response_types: [],
                ...machine
            }))
        ],
        clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post', 'private_key_jwt'],
        features: {
            clientCredentials: { enabled: true },
            devInteractions: { enabled: true },
            registration: { enabled: !described },
            revocation: { enabled: true },
            clientIdMetadataDocument: { enabled: described, ack: 'draft-02' },
            resourceIndicators: {
                enabled: true,
                getResourceServerInfo: () => ({
                    scope: 'mcp:read mcp:write',
                    accessTokenFormat: 'opaque',
                    accessTokenTTL: life_s
                }),
                useGrantedResource: () => true
            }
        },
        fetch: async () =>
            new Response(JSON.stringify(document), { headers: { 'content-type': 'application/json' } }),
        findAccount: (_, id) => ({
            accountId: id,
            claims: () => ({ sub: id, email: `${id}@people.test` })
        }),
        pkce: { required: () => true },
        rotateRefreshToken: true,
        ttl: { AccessToken: life_s, IdToken: 600, Grant: 86400, Session: 600, Interaction: 600, RefreshToken: 86400 }
    });
    for (const kind of ['access_token', 'refresh_token']) {
        provider.on(`${kind}.saved`, (token) => issued.add(token));
        provider.on(`${kind}.destroyed`, () => (seen.revoked += 1));
    }
    provider.on('grant.success', (ctx) => seen.token.push(ctx.oidc.params.grant_type));
    provider.on('registration_create.success', () => (seen.register += 1));
    const callback = provider.callback();

    server.on('request', async (request, response) => {
        const send = (status, body, headers = {}) => {
            response.writeHead(status, { 'content-type': 'application/json', ...headers });
            response.end(JSON.stringify(body));
        };
        const path = request.url.split('?')[0];
        if (path === '/test/seen') return send(200, seen);
        if (path === '/test/revoke') {
            for (const token of issued) await token.destroy();
            return send(200, {});
        }
        if (path === '/.well-known/oauth-protected-resource/mcp')
            return send(200, {
                resource,
                authorization_servers: [origin],
                scopes_supported: ['openid', 'email', 'mcp:read']
            });
        if (path === '/.well-known/oauth-authorization-server')
            return callback(Object.assign(request, { url: '/.well-known/openid-configuration' }), response);
        if (path !== '/mcp') return callback(request, response);

        const bearer = (request.headers.authorization ?? '').replace('Bearer ', '');
        const token = bearer
            ? ((await provider.AccessToken.find(bearer)) ?? (await provider.ClientCredentials.find(bearer)))
            : undefined;
        if (!token || token.isExpired || token.aud !== resource) {
            const place = `${origin}/.well-known/oauth-protected-resource/mcp`;
            return send(401, {}, { 'www-authenticate': `Bearer resource_metadata="${place}"` });
        }
        let body = '';
        for await (const chunk of request) body += chunk;
        const { id, method, params } = JSON.parse(body || '{}');
        const reply = (result) => send(200, { jsonrpc: '2.0', id, result: { resultType: 'complete', ...result } });
        const cache = { ttlMs: 0, cacheScope: 'private' };
        const account = token.accountId ?? token.clientId;
        const needed = scopeOf(params?.name);
        if (needed && !token.scope.split(' ').includes(needed))
            return send(403, {}, { 'www-authenticate': `Bearer error="insufficient_scope", scope="${needed}"` });
        if (method === 'server/discover')
            return reply({ supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, ...cache });
        if (method === 'tools/list') {
            const names = machines.length ? [`whoami_${account}`, 'write'] : [`whoami_${account}`];
            const tools = names.map((name) => ({ name, inputSchema: { type: 'object' } }));
            return reply({ tools, ...cache });
        }
        if (method === 'tools/call') {
            seen.calls.push(account);
            const text = `${params.name} is ${account} with ${token.scope}`;
            return reply({ content: [{ type: 'text', text }] });
        }
        send(200, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } });
    });
    console.log(origin);
});
