"""A conversation with alternatives as plain lists: the tree of messages, and the path through it.

Written by `docs/concepts/sessions-and-messages.md` and by nothing else. Messages are known by their ids.
"""

from itertools import count


class ConversationTree:
    """One session without a running turn."""

    def __init__(self) -> None:
        """Begins empty."""
        self.path: list[str] = []
        """The messages that lists show, in order."""
        self.parents: dict[str, str] = {}
        """The message before each one; "" for none."""
        self.taken_back: set[str] = set()
        self._places: dict[str, int] = {}
        self._next_place = count().__next__
        self._hidden: list[tuple[list[str], list[str]]] = []
        """Hidden parts that can be restored, the newest last: messages of the path, and other beginnings."""

    def add(self, message_id: str) -> None:
        """A message came behind the path."""
        self.parents[message_id] = self.path[-1] if self.path else ""
        self._places[message_id] = self._next_place()
        self.path.append(message_id)

    def begin_turn(self) -> None:
        """A turn began: nothing can be restored any more."""
        self._hidden.clear()

    def lead_to(self, message_id: str) -> None:
        """The path ends with a message, or is empty for ""."""
        self.path = self._line_to(message_id)
        self._hidden.clear()

    def select(self, message_id: str) -> None:
        """The path leads through a message to its newest end."""
        if message_id in self.path:
            return
        self.lead_to(message_id)
        while following := self.alternatives(self.path[-1]):
            self.path.append(following[-1])

    def revert(self, message_id: str) -> None:
        """A message of the path was taken back with all behind it."""
        at = self.path.index(message_id)
        self._hide(self.path[at:], [])
        del self.path[at:]

    def clear(self) -> None:
        """All was taken back."""
        self._hide(self.path, [one for one in self.alternatives("") if one not in self.path])
        self.path = []

    def restore(self) -> bool:
        """Restores the part that was hidden last. Returns False when there is none."""
        if not self._hidden:
            return False
        block, beginnings = self._hidden.pop()
        self.taken_back -= {*block, *beginnings}
        if not block:
            return True
        before = [one for one in self.path if self._places[one] < self._places[block[0]]]
        added = self.path[len(before) :]
        if added:
            self.parents[added[0]] = block[-1]
        self.path = [*before, *block, *added]
        return True

    def move_to_end(self, message_id: str) -> None:
        """A message of the path was moved behind all others; what is off the path behind it goes along."""
        at = self.path.index(message_id)
        if behind := self.path[at + 1 : at + 2]:
            self.parents[behind[0]] = self.parents[message_id]
        following = [one for one in self._under(message_id) if one not in self.path]
        del self.path[at]
        self.add(message_id)
        for one in sorted(following, key=self._places.__getitem__):
            self._places[one] = self._next_place()

    def alternatives(self, previous: str) -> list[str]:
        """Returns the messages that follow another one, or that can begin the conversation for "", the oldest first."""
        found = [one for one, parent in self.parents.items() if parent == previous and one not in self.taken_back]
        return sorted(found, key=self._places.__getitem__)

    def numbers(self, message_id: str) -> tuple[int, int]:
        """Returns how many alternatives a message has, and which of them it is; zeros when there is no other."""
        among = self.alternatives(self.parents[message_id])
        return (len(among), among.index(message_id)) if len(among) > 1 else (0, 0)

    def can_be_on_the_path(self, message_id: str) -> bool:
        """Returns whether neither the message nor one before it was taken back."""
        return not self.taken_back & set(self._line_to(message_id))

    def _line_to(self, message_id: str) -> list[str]:
        line = list[str]()
        while message_id:
            line.insert(0, message_id)
            message_id = self.parents[message_id]
        return line

    def _under(self, message_id: str) -> set[str]:
        """Returns all that follows a message on any line."""
        return {one for one in self.parents if message_id in self._line_to(one)[:-1]}

    def _hide(self, block: list[str], beginnings: list[str]) -> None:
        self.taken_back |= {*block, *beginnings}
        if block or beginnings:
            self._hidden.append((list(block), beginnings))
