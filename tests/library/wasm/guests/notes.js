// The component of the front page: one function, which is its one tool.

export function search(text) {
  return `nothing about ${text}`;
}
