"""The scikit-learn front: the classifier, its rows, its parameters, and the path of taus."""
