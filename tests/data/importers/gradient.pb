Ë	
=€ €€€€
>€  €€€
?€ €€€
@€ •€€€
A€  ‚€€€
B€ €€€
C€ –€€€
D€  ƒ€€€
E€ Ž€€€
F€ —€€€
G€  „€€€
H€ €€€
I€ ”€€€
J€ Œ€€€
K€ “€€€
L€ ‹€€€
M€ ’€€€
N€ Š€€€
O€ ‘€€€
P€  †€€€
Q€  ‡€€€
R€  ˆ€€€
S€  ‰€€€
T  …€€€€ 8J@€ JP€  € 8JC€ JQ€  € 8JF€ JR€  4€ 8J?€ JB€ JE€ JH€ JS€  € (0J>€  € (0JA€  € (0JD€  € (0JG€  €(J=€ 	 8JT  XP
€JI€ J
J€€ J
K€€ JL€ JM€ J
N€€ J
O€€ "Ê
!Imain.1"multiply_add_fusion.3
Jmain.1"ynn_fusion.2
#Imain.1"multiply_add_fusion.3
Jmain.1"ynn_fusion.2
%Kmain.1"multiply_add_fusion.2(J
Lmain.1"ynn_fusion.1
#Kmain.1"multiply_add_fusion.2
Lmain.1"ynn_fusion.1
%Mmain.1"multiply_add_fusion.1(L
Nmain.1"
ynn_fusion
#Mmain.1"multiply_add_fusion.1
Nmain.1"
ynn_fusion
#Omain.1"multiply_add_fusion(N
!Omain.1"multiply_add_fusion
*P*Q*R*S*>*A*D*G*=*	T*
IJ