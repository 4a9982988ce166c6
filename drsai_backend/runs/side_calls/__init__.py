"""What chat windows ask about a chat, told apart from its conversation, and answered beside it. Nothing is stored."""
