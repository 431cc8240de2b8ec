"""A deterministic extractive model: it searches with the tools it is offered and quotes.

- `words`: a question into terms, terms in a line
- `offers`: which of the offered tools searches, reads, lists; calls of them
- `evidence`: what the conversation holds: the question, the results so far
- `ranking`: passages, best first
- `answering`: what to do next: calls, or an answer of exact quotes
- `streaming`: an answer as a stream within its allowance
- `plugin`: the only file that knows the SDK

All state is the conversation: the same messages give the same answer, in any process.
"""

__all__: list[str] = []
