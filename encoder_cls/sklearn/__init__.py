"""The classifier as an estimator of scikit-learn.

>>> from encoder_cls.sklearn import TextClassifier
>>> model = TextClassifier().set_params(d_model=64).fit(texts, labels)
>>> model.predict(["where is my parcel?"])
array(['track_order'], dtype='<U16')
"""

from encoder_cls.sklearn.text_classifier import TextClassifier

__all__ = ["TextClassifier"]
