"""The paper's tables measured again, and its ablations trained again in small."""
