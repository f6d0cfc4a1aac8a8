"""What annotations say of the fields of records, without values of their own."""


class Mark:
    """One such word."""


LATER = Mark()  #: came after the first published form: a saved result may lack it
