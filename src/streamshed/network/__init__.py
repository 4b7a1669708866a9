"""Networks of sensors that join what they read: clusters, relevance feedback, accounts.

SNJoin* (Ali, Aref, Kamel 2005, sections 4 and 5), simulated message by message.
"""

from streamshed.network.clustering import Clusters, heed
from streamshed.network.relevance import Relevance
from streamshed.network.simulation import Network, Outcome, simulate

__all__ = ["Clusters", "Network", "Outcome", "Relevance", "heed", "simulate"]
