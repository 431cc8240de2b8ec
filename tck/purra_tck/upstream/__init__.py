"""The provider behind a model, played by the kit: it sees what arrives and says what comes back.

Who judges a model by a provider of its own choice judges an echo. So the kit holds the far end too:
nonces go in at one side and must come out at the other.
"""

__all__: list[str] = []
