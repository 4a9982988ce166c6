"""Side calls give answers to what chat windows ask about a chat, beside its conversation. Nothing is stored."""
