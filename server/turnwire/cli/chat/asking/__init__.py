"""What a person is asked in a chat, and how what is typed is read. Nothing here is drawn or sent."""
