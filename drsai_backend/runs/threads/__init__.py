"""Threads as they are stored: who may do what with which, what of them is shown to whom, and how they are rewound."""
