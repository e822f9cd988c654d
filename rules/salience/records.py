from rules.conversation import CountTokens
def excerpt_json(text: str, limit: int, total: int, count: CountTokens) -> str | None:
    return None
