"""The net is what this server may reach when somebody else names the address: webhooks, and tools that fetch."""
