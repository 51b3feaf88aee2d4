"""Lets the model ask you a question: client_tool.py [TEXT [HOST:PORT]]. The tool ask_user runs here, in the client."""

import sys

from turnwire_client import BlockingClient, TurnwireError

# the second line makes the offline model call the tool
TEXT = 'Ask me for my name with ask_user, then greet me.\n/tool ask_user {"question": "What is your name?"}'

text, address = (*sys.argv[1:], *(TEXT, "127.0.0.1:50051")[len(sys.argv) - 1 :])


try:
    with BlockingClient.connect(address) as client:

        @client.tool()
        def ask_user(question: str) -> str:
            """Asks the user a question."""
            return input(f"\n{question} ")

        for piece in client.ask(text):
            print(piece, end="", flush=True)
        print()
except TurnwireError as error:
    sys.exit(str(error))
