"""The door to LangChain and LangGraph. Needs the extra `langchain`."""
