"""Memory for LangChain and LangGraph agents that outlives the context window, in plain files."""

__version__ = "0.1.0"
