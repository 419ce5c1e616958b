"""An agent of forty lines: it adds and asks each turn, corrects, deletes and compiles contexts."""

from __future__ import annotations

from pathlib import Path

from graphmem_torch.memory import Memory
from tests.memories import opened


class Agent:
    """It answers with the best memory that a user stated."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def hear(self, user: str, text: str, key: str | None = None) -> str:
        """Stores what a user says; of a question also the answer, which it returns."""
        own = self.memory.namespaces.create(user)
        own.add({"role": "user", "content": text}, session="chat", key=key)
        if not text.endswith("?"):
            return "noted"
        found = own.retrieve(text, where={"speaker": "user"})
        reply = next((hit.text for hit in found.hits if not hit.text.endswith("?")), "unknown")
        own.add({"role": "assistant", "content": reply}, session="chat")
        return reply

    def find(self, user: str, words: str) -> str:
        """The id of what a user said."""
        own = self.memory.namespaces[user]
        return next(a.id for a in own if words in a.text and a.speaker == "user")

    def correct(self, user: str, words: str, text: str) -> None:
        """Has a user's memory say something else."""
        self.memory.namespaces[user].update(self.find(user, words), {"text": text})

    def drop(self, user: str, words: str) -> None:
        """Deletes what a user said."""
        self.memory.namespaces[user].delete(self.find(user, words))

    def context(self, user: str, question: str) -> str:
        """What a model would be given."""
        return self.memory.namespaces[user].compile(question, budget=120).text


FACTS = {
    "ada": (
        "I live in a flat in Bergen.",
        "My pet is a parrot called Kiwi.",
        "I work as a baker at the harbour.",
    ),
    "ben": (
        "I live in a house in Porto.",
        "My pet is a goat called Zoe.",
        "I work as a tailor at the castle.",
    ),
}


def test_the_answers_of_an_agent_are_right(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        agent = Agent(memory)
        for user, facts in FACTS.items():
            for fact in facts:
                assert agent.hear(user, fact) == "noted"
            for question, place in (
                ("In which city do I live?", 0),
                ("In which city do I live?", 0),  # asked again
                ("What is my pet called?", 1),
                ("Where do I work?", 2),
            ):
                assert agent.hear(user, question) == f"user: {facts[place]}"
        agent.correct("ada", "I live in", "I live in a hut near Oslo.")
        assert "Oslo" in agent.hear("ada", "In which city do I live?")
        assert "Porto" in agent.hear("ben", "In which city do I live?")
        agent.drop("ben", "My pet is")
        assert "Zoe" not in agent.hear("ben", "What is my pet called?")
        assert "Kiwi" in agent.context("ada", "What is my pet called?")
        assert "Kiwi" not in agent.context("ben", "What is my pet called?")
        for _ in range(2):  # a request that is delivered twice
            agent.hear("ben", "yes", key="request 7")
        agent.hear("ben", "yes")
        assert sum(atom.text == "yes" for atom in memory.namespaces["ben"]) == 2
    with opened(tmp_path) as memory:
        agent = Agent(memory)
        agent.hear("ben", "yes", key="request 7")
        assert "Oslo" in agent.hear("ada", "In which city do I live?")
        said = memory.namespaces["ben"].list(where={"speaker": "user"}, order="-added", limit=3)
        assert [atom.text for atom in said].count("yes") == 2
        assert all(memory.namespaces[user].check() == [] for user in list(memory.namespaces))
