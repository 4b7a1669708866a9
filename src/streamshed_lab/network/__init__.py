"""Networks of sensors that join what they read: clusters, relevance feedback, accounts.

SNJoin* (Ali, Aref, Kamel 2005, sections 4 and 5), simulated message by message.
"""

from streamshed.relevance import Relevance
from streamshed_lab.network.clustering import Clusters, heed
from streamshed_lab.network.simulation import Network, Outcome, simulate

__all__ = ["Clusters", "Network", "Outcome", "Relevance", "heed", "simulate"]
