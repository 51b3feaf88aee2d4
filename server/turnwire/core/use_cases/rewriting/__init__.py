"""Operations on whole conversations: copies, and messages that are taken back."""
