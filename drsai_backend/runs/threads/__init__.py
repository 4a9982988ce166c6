"""Threads have rules here as they are stored: who may do what with which, what of them is shown to whom, and how they
are rewound."""
