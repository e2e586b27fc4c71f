// The official TypeScript client, able to log in by OAuth, connects without a token and prints what its
// user would see: the message of the error.
//
//   node login.mjs '{"url": "http://..."}'

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const { url } = JSON.parse(process.argv[2]);
const authProvider = {
    redirectUrl: 'http://localhost:9/callback',
    clientMetadata: { redirect_uris: ['http://localhost:9/callback'], client_name: 'tests-ts' },
    clientInformation: () => undefined,
    saveClientInformation: () => {},
    tokens: () => undefined,
    saveTokens: () => {},
    redirectToAuthorization: () => {},
    saveCodeVerifier: () => {},
    codeVerifier: () => ''
};
const client = new Client({ name: 'tests-ts', version: '1.0.0' });
try {
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
    console.log('connected');
} catch (error) {
    console.log(error.message);
}
