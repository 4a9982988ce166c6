"""Side calls answer what chat windows ask about a chat, beside its conversation. Nothing is stored."""
